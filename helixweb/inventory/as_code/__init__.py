"""The inventory as a file: exported, compared with what is there, and brought in as a whole.

`kinds` says what a file may tell, `documents` and `csv_files` read it, `diff` compares it with
`stored`, `checks` looks at what would come of it, `applying` does it in one transaction.
"""
