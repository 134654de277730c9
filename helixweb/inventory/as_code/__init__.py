"""The inventory as a file: exported, compared with what is there, and brought in as a whole.

`kinds` says what a file may declare, `documents` and `csv_files` read it, `diff` compares it with
the site, `applying` does the steps, `importing` does all of it in one transaction.
"""
