// The codecs of codec_fixture.h, and one that is a class of Python (tests/support/python_codecs.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "codec_fixture.h"
#include "tests/support/python_codecs.h"

namespace longhaul::codec {

// With the class only where there is a Python with numpy.
inline std::vector<std::string> AllCodecsAndPython() {
  std::vector<std::string> codecs = AllCodecs();
  if (longhaul::testing::PythonCodecHost() != nullptr) {
    codecs.emplace_back("python:python_codecs:Planes,bits=32");
  }
  return codecs;
}

// Ready to encode and decode.
inline std::shared_ptr<const Codec> MustMakeReady(const std::string& text) {
  auto ready = python::Ready(longhaul::testing::PythonCodecHost(), MustParse(text));
  EXPECT_TRUE(ready.ok()) << ready.status();
  return ready.ok() ? *std::move(ready) : nullptr;
}

}  // namespace longhaul::codec
