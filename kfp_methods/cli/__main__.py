"""`python -m kfp_methods.cli` is the command `kfp-methods`."""

from kfp_methods.cli import main

main()
