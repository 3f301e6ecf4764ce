// Small helpers for sentences. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace longhaul::coordinator {

// Returns the parts separated by commas: "a, b, c". "": there are no parts.
std::string Join(const std::vector<std::string>& parts);

// Returns text from a worker or user as a part of a sentence: on one line, without control
// characters, at most a thousand bytes.
std::string Quoted(std::string_view text);

// Returns whether `a` comes before `b` in natural order: "worker2" comes before "worker10".
bool NaturalLess(std::string_view a, std::string_view b);

}  // namespace longhaul::coordinator
