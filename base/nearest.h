// Suggests the word that a user probably meant.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

// Returns "; did you mean 'x'?" with the word x of `known` that is nearest to `word`, or "" if none
// is near. The distance counts insertions, deletions, changes and swaps of neighbours, and ignores
// the case. A word is near if its distance is at most 1, or at most a third of the longer word's
// length. Returns "" if `word` is longer than 64 bytes.
std::string DidYouMean(std::string_view word, std::span<const std::string_view> known);
inline std::string DidYouMean(std::string_view word, const std::vector<std::string>& known) {
  return DidYouMean(word, std::vector<std::string_view>(known.begin(), known.end()));
}

}  // namespace longhaul
