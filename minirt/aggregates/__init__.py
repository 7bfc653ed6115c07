"""Aggregates: what a keyed stream computes of the records of each key, also of each window.

Those that need no more than an array are in `basic`. Every other one is a file with the aggregate and its
accumulator, and a line here.
"""

from minirt.aggregates.arg_extremes import ArgMax, ArgMin
from minirt.aggregates.basic import (
    WIDE_SUM,
    Accumulated,
    Aggregate,
    Count,
    First,
    Fold,
    Last,
    Max,
    Mean,
    Min,
    Sum,
)
from minirt.aggregates.collect import Collect
from minirt.aggregates.count_distinct import CountDistinct
from minirt.aggregates.quantile import Quantile
from minirt.aggregates.top_n import TopN
from minirt.aggregates.variance import StdDev, Variance

__all__ = [
    "WIDE_SUM",
    "Accumulated",
    "Aggregate",
    "ArgMax",
    "ArgMin",
    "Collect",
    "Count",
    "CountDistinct",
    "First",
    "Fold",
    "Last",
    "Max",
    "Mean",
    "Min",
    "Quantile",
    "StdDev",
    "Sum",
    "TopN",
    "Variance",
]
