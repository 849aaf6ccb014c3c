"""ImageDecoder: a host step."""

from __future__ import annotations

from luban.core.types import tensor
from luban.frontend.onnx.registry import NodeContext, op
from luban.graph.host import images as host_images
from luban.ir.node import Node

__all__: list[str] = []

_ = host_images  # registers the host function


@op("ImageDecoder", since=20)
def image_decoder(ctx: NodeContext, encoded: Node) -> tuple[Node, ...]:
    """u8[height, width, channels] from the bytes of an image file."""
    pixels = ctx.text("pixel_format", "RGB")
    if pixels not in ("RGB", "BGR", "Grayscale"):
        raise ctx.wrong(f"pixel_format is {pixels!r}, expected RGB, BGR or Grayscale")
    channels = 1 if pixels == "Grayscale" else 3
    shape = (ctx.fresh("height"), ctx.fresh("width"), channels)
    return ctx.host_call("decode_image", [encoded], [tensor("u8", *shape)], pixels=pixels)
