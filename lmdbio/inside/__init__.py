"""inside: what values and keys look like, guessed from their bytes, and shown. Pure.

    excerpt    the first and the last bytes of a value
    kinds      the kind of a value: ``guess``
    images     image files by their first bytes, and their sizes by their headers
    embedded   pictures within other values: pickles, msgpack, behind a small header
    wire       protobuf, Caffe's Datum and msgpack, walked by hand
    packed     zlib, gzip, zstd, lz4, bz2 and xz, unpacked as far as a bound
    arrays     NumPy's headers, and bytes that look like numbers
    keytext    keys as text that people can type, and back
    preview    a few lines that show a value
    names      file names for keys
    pictures   small pictures of values: image files shrunk, arrays drawn
    summary    sizes, kinds and keys of some records, summed up
    page       one HTML page of small pictures
    cards      records as cards of it, and a small card for notebooks

Uses ``page`` for its look; NumPy and, where it is installed, Pillow.

Invariants:
  - nothing that a value holds is run: pickles are named, and never loaded;
  - every step is bounded, whatever the bytes are: a value that makes no sense is "binary".
"""
