// The codecs of tests/support/python_codecs, and a host (codec/python/host.h) that permits them.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "codec/codec.h"
#include "codec/python/host.h"
#include "deploy/python_program.h"

namespace longhaul::testing {

// Null: this machine has no Python with numpy. Call it from the main thread first.
inline const codec::python::Host* PythonCodecHost() {
  static const auto host = []() -> std::unique_ptr<codec::python::Host> {
    const StatusOr<PythonProgram> program = FindPythonProgram(PythonCodecPart());
    if (!program.ok()) return nullptr;
    ::setenv("PYTHONPATH", LONGHAUL_SOURCE_DIR "/tests/support/python_codecs", /*overwrite=*/1);
    return std::make_unique<codec::python::Host>(
        codec::python::HostOptions{.modules = {"python_codecs"},
                                   .python = program->python,
                                   .main = program->main,
                                   .call_limit = absl::Seconds(20)});
  }();
  return host.get();
}

}  // namespace longhaul::testing
