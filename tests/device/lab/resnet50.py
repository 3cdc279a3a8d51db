"""ResNet-50's tensors, all widths divided by a number, as a .safetensors file.

Shapes: He et al., Deep Residual Learning for Image Recognition (CVPR 2016), table 1, 50 layers,
with batch normalisation's two vectors after each convolution.
"""

import json
import struct


def shapes(scale=1):
    """Names and shapes of the 161 tensors, widths divided by `scale` and rounded up."""
    def wide(channels):
        return -(-channels // scale)

    out = {}

    def convolution(name, inputs, outputs, size):
        out[f"{name}.weight"] = [wide(outputs), inputs if inputs == 3 else wide(inputs), size, size]
        for vector in ("weight", "bias"):
            out[f"{name}.norm.{vector}"] = [wide(outputs)]

    convolution("stem", 3, 64, 7)
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            name = f"stage{stage}.{block}"
            convolution(f"{name}.reduce", inputs, width, 1)
            convolution(f"{name}.spread", width, width, 3)
            convolution(f"{name}.expand", width, 4 * width, 1)
            if block == 0:
                convolution(f"{name}.shortcut", inputs, 4 * width, 1)
            inputs = 4 * width
    out["classes.weight"] = [wide(1000), wide(inputs)]
    out["classes.bias"] = [wide(1000)]
    return out


def elements(all_shapes):
    total = 0
    for shape in all_shapes.values():
        count = 1
        for extent in shape:
            count *= extent
        total += count
    return total


# What the original has.
assert len(shapes()) == 161 and elements(shapes()) == 25_557_032


def write(path, scale):
    """Zeros of these shapes; the number of elements."""
    header, at = {}, 0
    for name, shape in shapes(scale).items():
        end = at + 4 * elements({name: shape})
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + bytes(at))
    return at // 4
