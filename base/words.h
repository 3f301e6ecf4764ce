// Gives each value of an enum a word, for run files, flags and people. A ToString beside the enum
// passes an array of the words, in the order of the enum, to WordOf. WordOf does not compile unless
// the array has one word for each value.
#pragma once

#include <cstddef>
#include <string_view>

namespace longhaul {

// Whether `kValue` is one of the named values of its enum. The function finds the answer in
// __PRETTY_FUNCTION__, which ends with "kValue = Colour::kRed" for a named value, and with "kValue
// = (Colour)7" for another number. The scope of a named value may have a parenthesis, too: "kValue
// = (anonymous namespace)::Colour::kRed".
template <auto kValue>
constexpr bool IsValueOfEnum() {
  std::string_view name = __PRETTY_FUNCTION__;
  name.remove_prefix(name.find("kValue = "));
  const size_t end = name.rfind(')');
  return end == std::string_view::npos || name[end + 1] == ':';
}

// Returns the word of `value`, or `unknown` for a number that is not a value of the enum, such as
// one from a newer version.
template <class T, size_t N>
constexpr std::string_view WordOf(T value, const std::string_view (&words)[N],
                                  std::string_view unknown = "?") {
  static_assert(IsValueOfEnum<static_cast<T>(N - 1)>() && !IsValueOfEnum<static_cast<T>(N)>(),
                "expected one word for each value of the enum");
  const auto i = static_cast<size_t>(value);
  return i < N ? words[i] : unknown;
}

}  // namespace longhaul
