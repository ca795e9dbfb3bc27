"""By which plugins Pillow opens the pictures that are decoded natively."""

from __future__ import annotations

from typing import Any

from fastloader._core.machine import identity

# Of each of these formats: the module that registers it, and what it registers.
_OPENED_BY = {
    "JPEG": ("PIL.JpegImagePlugin", "jpeg_factory", "_accept"),
    "PNG": ("PIL.PngImagePlugin", "PngImageFile", "_accept"),
    "WEBP": ("PIL.WebPImagePlugin", "WebPImageFile", "_accept"),
}
# How files of these formats begin, as far as a plugin is shown them.
_BEGINNINGS = {
    "JPEG": (
        b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01",
        b"\xff\xd8\xff\xe1\x00\x10Exif\x00\x00II*\x00",
        b"\xff\xd8\xff\xdb\x00C\x00\x08\x06\x06\x07\x06\x05\x08\x07\x07",
    ),
    "PNG": (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",),
    "WEBP": (
        b"RIFF\x24\x00\x00\x00WEBPVP8 ",
        b"RIFF\x24\x00\x00\x00WEBPVP8L",
        b"RIFF\x24\x00\x00\x00WEBPVP8X",
    ),
}
# The decoders of Pillow's own that these formats name.
_DECODERS = ("jpeg", "raw", "zip")


def other_plugin() -> str:
    """Says what Pillow opens or decodes a format by that is decoded natively, if it is not the plugin of
    Pillow's; empty if it is."""
    decoders = identity.found("PIL.Image", "DECODERS") or {}
    for name in _DECODERS:
        if name in decoders:
            return f"Pillow decodes {name!r} by {identity.said(decoders[name])}"
    order = identity.found("PIL.Image", "ID") or []
    plugins = identity.found("PIL.Image", "OPEN") or {}
    for format_, (module, *names) in _OPENED_BY.items():
        own = tuple(identity.found(module, name) for name in names)
        if None in own:
            continue  # its module was not imported: Pillow will register it when it opens a picture
        if format_ not in order or format_ not in plugins:
            return f"Pillow opens no {format_}"
        registered = plugins[format_]
        if not _same(registered, own):
            changed = next(
                (each for each, its in zip(registered, own, strict=False) if each is not its), None
            )
            return f"Pillow opens {format_} by {identity.said(changed)}"
    # A file is shown to all plugins, in their order, until one takes it.
    for format_ in _OPENED_BY:
        before = order[: order.index(format_)] if format_ in order else order
        for each in before:
            factory, accept = plugins.get(each, (None, None))
            if factory is not None and each not in _OPENED_BY and _takes(factory, accept, format_):
                return f"Pillow opens {format_} by {identity.said(factory)}"
    return ""


def _same(registered: Any, own: tuple[Any, ...]) -> bool:
    return len(registered) == len(own) and all(
        map(lambda one, other: one is other, registered, own)
    )


def _takes(factory: Any, accept: Any, format_: str) -> bool:
    """Whether a plugin would open files of this format; True if that cannot be told."""
    if _is_pillows(factory) and (accept is None or _is_pillows(accept)):
        return False
    if accept is None:
        return True
    try:
        return any(accept(beginning) for beginning in _BEGINNINGS[format_])
    except Exception:
        return True


def _is_pillows(value: Any) -> bool:
    """Whether a function or class is one of Pillow's for another format than those above."""
    home = getattr(value, "__module__", "")
    others = [module for module, *_ in _OPENED_BY.values()]
    return str(home).startswith("PIL.") and home not in others and identity.is_librarys(value)
