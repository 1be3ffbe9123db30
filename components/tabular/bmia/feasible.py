"""What is bound to fail is found before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kfp_methods.components.tabular.bmia.architectures import last_layer, layout
from kfp_methods.components.tabular.bmia.posterior import check_full
from kfp_methods.components.tabular.bmia.sample import EMBEDDED_RECORDS, IMAGE_SHAPE, N_CLASSES, whole_files

if TYPE_CHECKING:
    from kfp_methods.components.tabular.bmia.component import BmiaInputs


def check_references(inputs: BmiaInputs, input_shape: Sequence[int], n_classes: int) -> None:
    """Raises InputError unless references can be built for such records and their posterior fitted."""
    layer = last_layer(layout(inputs.arch, input_shape, n_classes, inputs.hidden))
    if inputs.hessian == "full":
        check_full(n_classes * (layer.in_features + 1))


def check_sample(inputs: BmiaInputs) -> None:
    """The same for the embedded sample, which must also have the records asked for."""
    if inputs.sample_size > EMBEDDED_RECORDS:
        whole_files()
    check_references(inputs, IMAGE_SHAPE, N_CLASSES)
