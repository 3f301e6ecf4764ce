// Suggests the word that a user probably meant.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

// "; did you mean 'x'?" with the word of `known` that has the smallest edit distance to `word`
// (insertions, deletions, changes, swaps of neighbours), whatever the case. "" if the distance
// exceeds a third of the length (at least 1), or `word` is longer than 64 bytes.
std::string DidYouMean(std::string_view word, std::span<const std::string_view> known);
inline std::string DidYouMean(std::string_view word, const std::vector<std::string>& known) {
  return DidYouMean(word, std::vector<std::string_view>(known.begin(), known.end()));
}

}  // namespace longhaul
