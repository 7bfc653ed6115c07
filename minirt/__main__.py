"""`python -m minirt`: the command line."""

from minirt.cli import main

main()
