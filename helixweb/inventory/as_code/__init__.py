"""The inventory as a file: exported, compared with what is there, and brought in as a whole.

`documents` says what a file may declare; it and `csv_files` read one, `diff` compares it with the
site and does the steps, `importing` does all of it in one transaction.
"""
