"""The operators of minirt, one file each: a spec that the job carries, and what runs in a subtask.

`OPERATORS` is the registry. Operators of other packages need no line in it: `Stream.apply` takes any
`OperatorSpec`. `minirt.operators.common` holds what operators are written with.
"""

from minirt.graph.operator_spec import Form, OperatorSpec, Site, StateDealing
from minirt.operators.aggregate import AggregateSpec
from minirt.operators.broadcast_process import BroadcastProcessSpec
from minirt.operators.common.base import Operator, OperatorContext, Step, Wait
from minirt.operators.common.keyed import KeyedOperator, check_stored_keys
from minirt.operators.distinct import DistinctSpec
from minirt.operators.filter import FilterColumnsSpec, FilterSpec
from minirt.operators.flat_map import CoFlatMapSpec, FlatMapSpec
from minirt.operators.join import JoinSpec
from minirt.operators.join_as_of import AsOfJoinSpec
from minirt.operators.join_ttl import TtlJoinSpec
from minirt.operators.keyed_process import KeyedCoProcessSpec, KeyedProcessSpec
from minirt.operators.map import CoMapSpec, MapSpec
from minirt.operators.map_async import MapAsyncSpec
from minirt.operators.map_batches import MapBatchesSpec
from minirt.operators.process import ProcessSpec
from minirt.operators.project import SelectSpec, WithColumnSpec
from minirt.operators.reduce import ReduceSpec
from minirt.operators.sink import SinkSpec
from minirt.operators.source import SourceSpec
from minirt.operators.top_n import TopNSpec
from minirt.operators.window import WindowAllSpec, WindowSpec
from minirt.operators.window_rows import RowWindowAllSpec, RowWindowSpec

OPERATORS: tuple[type[OperatorSpec], ...] = (
    SourceSpec,
    MapSpec,
    FlatMapSpec,
    FilterSpec,
    FilterColumnsSpec,
    SelectSpec,
    WithColumnSpec,
    MapBatchesSpec,
    MapAsyncSpec,
    ProcessSpec,
    CoMapSpec,
    CoFlatMapSpec,
    ReduceSpec,
    AggregateSpec,
    DistinctSpec,
    TopNSpec,
    WindowSpec,
    WindowAllSpec,
    RowWindowSpec,
    RowWindowAllSpec,
    JoinSpec,
    TtlJoinSpec,
    AsOfJoinSpec,
    KeyedProcessSpec,
    KeyedCoProcessSpec,
    BroadcastProcessSpec,
    SinkSpec,
)

__all__ = [
    "OPERATORS",
    "Form",
    "KeyedOperator",
    "Operator",
    "OperatorContext",
    "OperatorSpec",
    "Site",
    "StateDealing",
    "Step",
    "Wait",
    "check_stored_keys",
]
