"""Pages that the program itself tells: each module here makes the text of one of them."""

from pathlib import Path


def write_all(folder: Path) -> None:
    """Write the pages into `folder`, only those that changed."""
    from docs.generate import command_line, decisions, engine_table, rest_api

    folder.mkdir(exist_ok=True)
    for name, module in (
        ("command-line", command_line),
        ("decisions", decisions),
        ("engine-table", engine_table),
        ("rest-api", rest_api),
    ):
        path = folder / f"{name}.md"
        text = module.page()
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
