// Finds the known word nearest to a given one, for "did you mean".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

// The word of `known` with the smallest edit distance to `word` (insertions, deletions, changes,
// swaps of neighbours), whatever the case. "" if the distance exceeds a third of the length (at
// least 1), or `word` is longer than 64 bytes.
std::string NearestWord(std::string_view word, const std::vector<std::string>& known);

}  // namespace longhaul
