// Files that people have in place of a model's. Internal to run/published. Pure, thread-safe.
#pragma once

#include <string_view>
#include <utility>

namespace longhaul::published {

// Returns what a file is that begins with `start` and cannot be read, and what to do about it, as a
// sentence; "": nothing that is known.
constexpr std::string_view WhatItIs(std::string_view start) {
  constexpr std::string_view kOfPyTorch =
      "it is a PyTorch file, which transformers' save_pretrained converts";
  constexpr std::pair<std::string_view, std::string_view> kKinds[] = {
      {"version https://git-lfs", "it is a Git LFS pointer; `git lfs pull` fetches the file"},
      {"GGUF", "it is a GGUF file, which transformers' from_pretrained reads with gguf_file"},
      {"PK\x03\x04", kOfPyTorch},
      {"\x80\x02", kOfPyTorch},
      {"<", "it is a web page, perhaps one that asks for a login; download the file again"},
  };
  for (const auto& [begin, sentence] : kKinds) {
    if (start.starts_with(begin)) return sentence;
  }
  return "";
}

}  // namespace longhaul::published
