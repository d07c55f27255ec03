"""The types of the names of ``_core``, which its modules have; ``__init__`` lists the names."""

# ruff: noqa: F403

from lmdbio._core.arrays import *
from lmdbio._core.bookmark import *
from lmdbio._core.checksum import *
from lmdbio._core.clock import *
from lmdbio._core.codec import *
from lmdbio._core.cursor import *
from lmdbio._core.datum import *
from lmdbio._core.engine import *
from lmdbio._core.exchange import *
from lmdbio._core.extents import *
from lmdbio._core.format import *
from lmdbio._core.history import *
from lmdbio._core.joined import *
from lmdbio._core.keys import *
from lmdbio._core.locate import *
from lmdbio._core.memory import *
from lmdbio._core.mesh import *
from lmdbio._core.opened import *
from lmdbio._core.peeked import *
from lmdbio._core.plan import *
from lmdbio._core.prefetch import *
from lmdbio._core.remote import *
from lmdbio._core.rows import *
from lmdbio._core.scan import *
from lmdbio._core.sources import *
from lmdbio._core.status import *
from lmdbio._core.storage import *
from lmdbio._core.trace import *
from lmdbio._core.transaction import *
from lmdbio._core.values import *
from lmdbio._core.window import *

absence: str

def need(what: str) -> None: ...
