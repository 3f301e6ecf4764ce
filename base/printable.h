// Text that came from elsewhere (names, logs, messages of peers), fit for a terminal, a log and a
// sentence: control characters, also those that turn the direction of writing, and bytes that are
// not UTF-8 become '?', a tab and the end of a line a blank. Pure functions.
#ifndef LONGHAUL_BASE_PRINTABLE_H_
#define LONGHAUL_BASE_PRINTABLE_H_

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

namespace longhaul {

// On one line. Of a longer text the first `limit` bytes, in whole characters, and "...".
std::string Printable(std::string_view text, size_t limit = std::numeric_limits<size_t>::max());
// The same for text of several lines.
std::string PrintableLines(std::string_view text);

}  // namespace longhaul

#endif  // LONGHAUL_BASE_PRINTABLE_H_
