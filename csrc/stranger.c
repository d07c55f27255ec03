#include "stranger.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Bytes at an offset, and what a file is that has them there. */
typedef struct {
    uint16_t offset, size;
    const char *bytes, *name;
} mark;

#define MARK(offset, bytes, name)                                                                 \
    {                                                                                             \
        offset, sizeof(bytes) - 1, bytes, name                                                    \
    }

static const mark MARKS[] = {
    MARK(0, "version https://git-lfs.github.com/",
         "a pointer of Git LFS: git lfs pull fetches the file"),
    MARK(0, "LMDBIOPV", "a provenance file of lmdbio: name the data file that it describes"),
    MARK(0, "\xDE\xC0\xEF\xBE", "LMDB's lock file: name the data file beside it"),
    MARK(21, "\x11\x4C\xEF\xBD\x9D\x65\x59", "a database of libmdbx, whose format is another one"),
    MARK(0, "SQLite format 3", "an SQLite database"),
    MARK(12, "\x62\x31\x05\x00", "a Berkeley DB database"),
    MARK(12, "\x61\x15\x06\x00", "a Berkeley DB database"),
    MARK(0, "\xCE\x9A\x57\x13", "a GDBM database"),
    MARK(0, "\xCF\x9A\x57\x13", "a GDBM database"),
    MARK(0, "MANIFEST-", "a file of a LevelDB or RocksDB database"),
    MARK(0, "\x89HDF\r\n\x1A\n", "an HDF5 file"),
    MARK(0, "PAR1", "a Parquet file"),
    MARK(0, "ARROW1", "an Arrow file"),
    MARK(0, "\xFF\xFF\xFF\xFF", "an Arrow stream, or nothing but ones"),
    MARK(0, "\x93NUMPY", "an array of NumPy's"),
    MARK(0, "\x0A\x23\xD7\xCE", "a RecordIO file of MXNet's"),
    MARK(0, "\x80\x02", "a pickle"),
    MARK(0, "\x80\x03", "a pickle"),
    MARK(0, "\x80\x04", "a pickle"),
    MARK(0, "\x80\x05", "a pickle"),
    MARK(0, "PK\x03\x04", "a zip archive (or a file of NumPy's or PyTorch's): unpack it"),
    MARK(0, "\x1F\x8B", "compressed by gzip: unpack it"),
    MARK(0, "\x28\xB5\x2F\xFD", "compressed by zstd: unpack it"),
    MARK(0,
         "\xFD"
         "7zXZ",
         "compressed by xz: unpack it"),
    MARK(0, "BZh", "compressed by bzip2: unpack it"),
    MARK(0, "\x04\x22\x4D\x18", "compressed by lz4: unpack it"),
    MARK(0, "7z\xBC\xAF\x27\x1C", "a 7z archive: unpack it"),
    MARK(0, "Rar!", "a RAR archive: unpack it"),
    MARK(257, "ustar", "a tar archive: unpack it"),
    MARK(0, "\x00\x05\x16\x07", "what macOS keeps beside a file (AppleDouble)"),
    MARK(0, "\xFF\xD8\xFF", "a JPEG image"),
    MARK(0, "\x89PNG", "a PNG image"),
    MARK(0, "%PDF-", "a PDF file"),
    MARK(0, "<?xml", "an XML file, perhaps what a server answered that refused"),
    MARK(0, "{", "a JSON file, or another text"),
};

/* Whether a text begins with a lower-case word, in letters of either case. */
static bool begins(const uint8_t *text, uint64_t length, const char *word)
{
    size_t size = strlen(word), at = 0;
    while (at < size && at < length && (text[at] | 0x20) == (uint8_t)(word[at] | 0x20))
        at++;
    return at == size;
}

static bool is_html(const uint8_t *head, uint64_t length)
{
    uint64_t at = 0;
    if (length >= 3 && memcmp(head, "\xEF\xBB\xBF", 3) == 0)
        at = 3;
    while (at < length && (head[at] == ' ' || (head[at] >= '\t' && head[at] <= '\r')))
        at++;
    return begins(head + at, length - at, "<!doctype html") ||
           begins(head + at, length - at, "<html");
}

/* Whether there are only such bytes as `is_one` knows among the first `most`. */
static bool all(const uint8_t *head, uint64_t length, uint64_t most, bool (*is_one)(uint8_t))
{
    uint64_t at = 0;
    while (at < length && at < most && is_one(head[at]))
        at++;
    return at == length || at == most;
}

static bool is_zero(uint8_t byte)
{
    return byte == 0;
}

static bool is_text(uint8_t byte)
{
    return (byte >= ' ' && byte < 0x7F) || (byte >= '\t' && byte <= '\r');
}

enum { ZEROS = 4096, LETTERS = 64 };

const char *lio_stranger_name(const uint8_t *head, uint64_t length)
{
    for (size_t i = 0; i < sizeof MARKS / sizeof *MARKS; i++) {
        const mark *one = &MARKS[i];
        if (length >= (uint64_t)one->offset + one->size &&
            memcmp(head + one->offset, one->bytes, one->size) == 0)
            return one->name;
    }
    if (is_html(head, length))
        return "an HTML page, perhaps what a server answered that refused";
    if (all(head, length, ZEROS, is_zero))
        return "zeros, as a file has them whose copy was not completed";
    if (all(head, length, LETTERS, is_text))
        return "a text";
    return NULL;
}
