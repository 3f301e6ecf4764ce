// Makes peers' text (names, logs, messages) safe to show in a terminal or a log. Control
// characters, characters that change the direction of writing, and bytes that are not UTF-8 become
// '?'. A tab and the end of a line become a space. Pure functions.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

namespace longhaul {

// Returns one line. A text longer than `limit` bytes is cut to at most `limit` bytes, at a whole
// character, and "..." is added.
std::string Printable(std::string_view text, size_t limit = std::numeric_limits<size_t>::max());
// Makes a text of several lines printable like Printable, but keeps the ends of lines and has no
// limit.
std::string PrintableLines(std::string_view text);

}  // namespace longhaul
