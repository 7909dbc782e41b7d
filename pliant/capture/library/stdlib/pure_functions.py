"""Functions of the standard library that need nothing but to be run on constants."""

from __future__ import annotations

import _codecs
import _struct
import ast
import base64
import binascii
import logging
import os
import posixpath
import pprint
import sys
import unicodedata
import zlib
from typing import TYPE_CHECKING

from pliant.capture.library.folding import on_constants
from pliant.capture.native import function, pure

if TYPE_CHECKING:
    pass


pure(
    _struct.calcsize, _struct.pack, _struct.unpack, _struct.Struct,
    zlib.crc32, zlib.adler32, zlib.compress, zlib.decompress,
    binascii.crc32, binascii.hexlify, binascii.unhexlify, binascii.a2b_base64, binascii.b2a_base64,
    _codecs.encode, _codecs.decode, os.fspath,
    getattr(posixpath, "_path_normpath", posixpath.normpath),
    sys.getdefaultencoding, sys.getfilesystemencoding, sys.intern, sys.is_finalizing,
)  # fmt: skip
for _name in ("name", "category", "normalize", "lookup", "decimal", "digit", "numeric"):
    pure(getattr(unicodedata, _name))
for _real in (
    ast.literal_eval, pprint.pformat, logging.getLevelName, base64.b64encode, base64.b64decode,
):  # fmt: skip
    function(_real)(on_constants(_real))
