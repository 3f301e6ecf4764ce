// Finds the known word nearest to a given one, for "did you mean".
#ifndef LONGHAUL_BASE_YAML_NEAREST_H_
#define LONGHAUL_BASE_YAML_NEAREST_H_

#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

// The word of `known` with the smallest edit distance to `word` (insertions, deletions, changes,
// swaps of neighbours), whatever the case. "" if the distance exceeds a third of the length (at
// least 1), or `word` is longer than 64 bytes.
std::string NearestWord(std::string_view word, const std::vector<std::string>& known);

}  // namespace longhaul

#endif  // LONGHAUL_BASE_YAML_NEAREST_H_
