// "did you mean": the known word that is most like what came.
#ifndef LONGHAUL_BASE_YAML_NEAREST_H_
#define LONGHAUL_BASE_YAML_NEAREST_H_

#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

// The word of `known` with the fewest insertions, deletions, changes and swaps of neighbours
// against `word`, upper and lower case alike; "" where none is within a third of its length (at
// least 1) or `word` is longer than 64 bytes.
std::string NearestWord(std::string_view word, const std::vector<std::string>& known);

}  // namespace longhaul

#endif  // LONGHAUL_BASE_YAML_NEAREST_H_
