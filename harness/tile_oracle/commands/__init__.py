"""The subcommands of `tile-oracle`, one module each: HELP, add_arguments(parser), run(args) -> status."""
