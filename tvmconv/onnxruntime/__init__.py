"""Models run by onnxruntime, with their convolutions by tvmconv's kernels on onnxruntime's own threads (docs/onnxruntime.md).

session = tvmconv.onnxruntime.session("detector.onnx", "provider.so")
session.run(None, {"images": images})
"""

from .sessions import register as register
from .sessions import session as session
from .sessions import with_shapes as with_shapes
