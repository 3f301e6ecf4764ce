// The words of an enum's values, for run files, flags and people: an array in the order of the
// enum, which a ToString beside the enum passes to WordOf.
#pragma once

#include <cstddef>
#include <string_view>

namespace longhaul {

// `unknown`: for a number that is not a value of the enum, such as one from a newer version.
template <class T, size_t N>
constexpr std::string_view WordOf(T value, const std::string_view (&words)[N],
                                  std::string_view unknown = "?") {
  const auto i = static_cast<size_t>(value);
  return i < N ? words[i] : unknown;
}

}  // namespace longhaul
