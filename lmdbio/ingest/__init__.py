"""ingest: makes data sets, of records that a program has, and of folders, archives and tables.

Uses ``convert``, ``provenance``, ``system`` and ``_core``.

    importing  from a source to a data set, continued where it was broken off
    sources    the seam to the kinds of source: facts, and samples in one order
    folder     images in folders, one for each class
    archive    samples in tar archives, as WebDataset writes them
    table      samples in Parquet files
    saved      samples in folders of Hugging Face's ``save_to_disk``
    mds        samples in MosaicML's shards
    reading    runs of samples, read by threads, in order
    writer     ``Writer``: records become a data set
    growing    py-lmdb's environment, whose map grows with its content
    part       the folder of a data set that is being written

    source -> batches of samples -> Writer -> TARGET.part -> provenance file -> TARGET

Invariants:
  - py-lmdb writes; a data set has its name once it is whole, on the disk, and described by its
    provenance file;
  - the part holds whole samples, from the first one on, and itself tells their number: a run goes
    on exactly where another one has ended;
  - memory is bounded by batches, whatever the size of the source.
"""
