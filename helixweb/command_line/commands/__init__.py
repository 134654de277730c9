"""One module per subcommand: `add_parser(subparsers)` and `run(arguments) -> int`."""
