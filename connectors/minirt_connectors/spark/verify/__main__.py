"""`python -m minirt_connectors.spark.verify`."""

import sys

from minirt_connectors.spark.verify.command import main

sys.exit(main())
