import numpy as np
import pytest

from planner.native import Packed


def test_numbers_lie_as_c_declares_them_and_can_be_read_back():
    packed = Packed(count=3, share=0.5, numbers=np.array([7, 8], dtype=np.int64))
    assert (packed.value("count"), packed.value("share")) == (3, 0.5)


@pytest.mark.parametrize(
    "array", [np.zeros(3, dtype=np.int32), np.zeros((4, 4))[:, ::2]], ids=["narrow", "with gaps"]
)
def test_an_array_that_c_would_misread_is_refused(array):
    with pytest.raises(TypeError, match="numbers"):
        Packed(numbers=array)
