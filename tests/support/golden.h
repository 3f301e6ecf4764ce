// Checks that formats keep their bytes. A golden file has the bytes that the first build of a
// format's version wrote: golden/NAME.vVERSION. A version's bytes must never change. To change a
// format, raise its version and run the test program with --update, which writes the missing files.
// --update never overwrites an existing file.
//
// golden.cc contains main(). lh_golden_files (cmake/LonghaulTargets.cmake) adds golden.cc to a test
// and defines GOLDEN_DIR, the path of the test's folder golden/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace longhaul::testing {

// Fails the current test if the file folder/NAME.vVERSION is missing or has other bytes. In the
// file's name, each ':', ',' and '/' of `name` becomes '_'. With --update, a missing file is
// written instead, and the test passes.
void ExpectGolden(const std::string& folder, std::string_view name, uint32_t version,
                  std::string_view bytes);
void ExpectGolden(const std::string& folder, std::string_view name, uint32_t version,
                  std::span<const std::byte> bytes);

// Returns the message with which ExpectGolden fails the test; "" if the test passes. `update`:
// writes a missing file.
std::string GoldenComplaint(const std::string& folder, std::string_view name, uint32_t version,
                            std::string_view bytes, bool update);

}  // namespace longhaul::testing
