"""Images: read from PNG, TIFF and NPY files and written to them, types kept.

Called by applications on images. In memory an image is (planes, rows, columns): a
plane for each channel, red first. Heavy imports wait until a file is read.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from libtask.errors import InputError
from libtask.wording import cause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

TYPES = ("uint8", "uint16", "float32", "float64")
SUFFIXES = (".png", ".tif", ".tiff", ".npy")
MOST_PLANES = 4
"""Red, green, blue, alpha."""

GREY, COLOUR = 2, 3
"""Axes of an image file: rows and columns, or these and channels."""

PNG_HEAD = struct.Struct(">8s4x4sIIBB")
"""Signature, length of the first chunk, "IHDR", width, height, bits, colour type."""
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PNG_PLANES = {0: 1, 2: 3, 3: 3, 4: 4, 6: 4}
"""PNG colour type -> planes; grey with alpha is read as red, green, blue, alpha."""
SIXTEEN_BITS = 16

TIFF_ORDERS = (b"II", b"MM")
"""Marks of the byte order, which begin a TIFF file."""
TIFF_SEPARATE = 2
"""TIFF planar configuration: each channel by itself."""


@dataclass(frozen=True, slots=True)
class Header:
    """The header of an image file."""

    planes: int
    rows: int
    columns: int
    dtype: str


def read_header(file: str) -> Header:
    """Read shape and type of the image in a file, without its pixels.

    Raises:
        InputError: unreadable, no image, or of another type.

    """
    try:
        header = _header(Path(file))
    except (OSError, ValueError, EOFError, struct.error) as error:
        raise InputError(f"{file}: not a readable image: {cause(error)}") from error
    if header.dtype not in TYPES:
        raise InputError(f"{file}: pixels are {header.dtype}; give {', '.join(TYPES)}")
    if not 1 <= header.planes <= MOST_PLANES or not header.rows * header.columns:
        shape = f"{header.rows} x {header.columns} x {header.planes}"
        text = "give rows x columns, or these x 1 to 4 channels"
        raise InputError(f"{file}: the image is {shape}; {text}")
    return header


def check_output(file: str, dtype: str) -> None:
    """Complain if an image of this type cannot be written to `file`.

    Raises:
        InputError: no such folder, or the format cannot hold the type.

    """
    path = Path(file)
    if not path.absolute().parent.is_dir():
        raise InputError(f"{file}: no such folder to write into")
    if path.suffix.lower() == ".png" and dtype.startswith("float"):
        raise InputError(f"{file}: PNG cannot hold {dtype}; give a .tif or .npy name")


def read_planes(file: str) -> NDArray[Any]:
    """Read the image in a file as (planes, rows, columns).

    Raises:
        InputError: unreadable, no image, or of another type.

    """
    read_header(file)
    try:
        return np.ascontiguousarray(_planes(Path(file)))
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{file}: not a readable image: {cause(error)}") from error


def write_planes(file: str, planes: NDArray[Any]) -> None:
    """Write (planes, rows, columns) in the format that the name's suffix tells.

    Raises:
        InputError: cannot be written.

    """
    image = planes[0] if len(planes) == 1 else np.moveaxis(planes, 0, -1)
    image = np.ascontiguousarray(image)
    try:
        _write(Path(file), image)
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: cannot be written: {cause(error)}") from error


def _header(path: Path) -> Header:
    if path.suffix.lower() == ".npy":
        array = _map(path)
        return _header_of(array.shape, array.dtype.name)
    with path.open("rb") as stream:
        head = stream.read(PNG_HEAD.size)
    if head.startswith(PNG_SIGNATURE):
        return _png_header(head)
    if head[:2] not in TIFF_ORDERS:
        raise ValueError("it is neither PNG, TIFF nor NPY")
    return _tiff_header(path)


def _png_header(head: bytes) -> Header:
    _, name, width, height, bits, colour = PNG_HEAD.unpack(head)
    if name != b"IHDR" or colour not in PNG_PLANES:
        raise ValueError("the PNG header is damaged")
    dtype = "uint16" if bits == SIXTEEN_BITS else "uint8"
    return Header(PNG_PLANES[colour], height, width, dtype)


def _header_of(shape: tuple[int, ...], dtype: str) -> Header:
    if len(shape) == GREY:
        return Header(1, shape[0], shape[1], dtype)
    if len(shape) == COLOUR:
        return Header(shape[2], shape[0], shape[1], dtype)
    raise ValueError(f"it has {len(shape)} axes; give rows, columns and channels")


def _planes(path: Path) -> NDArray[Any]:
    if path.suffix.lower() == ".npy":
        return _split(np.array(_map(path)))
    with path.open("rb") as stream:
        signature = stream.read(len(PNG_SIGNATURE))
    if signature == PNG_SIGNATURE:
        return _split(_read_png(path))
    return _tiff_planes(path)


def _split(image: NDArray[Any]) -> NDArray[Any]:
    native = image.astype(image.dtype.newbyteorder("="), copy=False)
    return native[None] if native.ndim == GREY else np.moveaxis(native, -1, 0)


def _map(path: Path) -> NDArray[Any]:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray):
        array.close()
        raise ValueError("it holds several arrays")  # noqa: TRY004  the file's fault
    return array


def _read_png(path: Path) -> NDArray[Any]:
    import cv2

    try:
        image: Any = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    except cv2.error as error:
        raise ValueError(str(error).strip().splitlines()[0]) from error
    if image is None:
        raise ValueError("the PNG data is damaged")
    return _swap_red_and_blue(image)


def _swap_red_and_blue(image: NDArray[Any]) -> NDArray[Any]:
    """Turn OpenCL's order of channels into everybody's, and back."""
    if image.ndim == GREY:
        return image
    return image[:, :, [2, 1, 0, 3][: image.shape[2]]]


@contextmanager
def _tiff_page(path: Path) -> Iterator[Any]:
    """Open the only page of a TIFF file."""
    import tifffile

    try:
        with tifffile.TiffFile(path) as tiff:
            if len(tiff.pages) != 1:
                raise ValueError(f"it has {len(tiff.pages)} pages; give one image")
            yield tiff.pages[0]
    except (tifffile.TiffFileError, KeyError, IndexError) as error:
        raise ValueError(str(error)) from error


def _tiff_header(path: Path) -> Header:
    with _tiff_page(path) as page:
        dtype = np.dtype(page.dtype).name if page.dtype else "of an unknown type"
        return Header(page.samplesperpixel, page.imagelength, page.imagewidth, dtype)


def _tiff_planes(path: Path) -> NDArray[Any]:
    with _tiff_page(path) as page:
        image: NDArray[Any] = page.asarray().reshape(_tiff_shape(page))
        return image.transpose(_tiff_axes(page))


def _tiff_shape(page: Any) -> tuple[int, ...]:
    size = (page.imagelength, page.imagewidth)
    planes = page.samplesperpixel
    return (planes, *size) if _tiff_axes(page) == (0, 1, 2) else (*size, planes)


def _tiff_axes(page: Any) -> tuple[int, int, int]:
    """Return the order that puts the planes first: they may be there already."""
    separate = page.planarconfig == TIFF_SEPARATE and page.samplesperpixel > 1
    return (0, 1, 2) if separate else (2, 0, 1)


def _write(path: Path, image: NDArray[Any]) -> None:
    suffix = path.suffix.lower()
    if suffix == ".npy":
        np.save(path, image)
    elif suffix == ".png":
        path.write_bytes(_encode_png(image))
    else:
        import tifffile

        photometric = "rgb" if image.ndim == COLOUR and image.shape[2] > 2 else None  # noqa: PLR2004  grey and alpha
        tifffile.imwrite(path, image, photometric=photometric or "minisblack")


def _encode_png(image: NDArray[Any]) -> bytes:
    import cv2

    if image.ndim == COLOUR and image.shape[2] == 2:  # noqa: PLR2004  grey and alpha
        raise ValueError("PNG takes 1, 3 or 4 channels here, not 2")
    _, data = cv2.imencode(".png", np.ascontiguousarray(_swap_red_and_blue(image)))
    return data.tobytes()
