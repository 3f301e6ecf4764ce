// Formats, byte for byte. A golden file holds what the first build of a format's version wrote, and
// its name carries that version: golden/NAME.vVERSION. A version's bytes never change: who changes
// them raises the version, and the test's program called with --update writes the files of new
// versions. It never overwrites a file that is there.
//
// golden.cc brings main(). A test with golden files defines GOLDEN_DIR.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace longhaul::testing {

// Fails the test where `bytes` are not those of the file, or where there is no file. `name` may
// hold
// ':', ',' and '/', which become '_'.
void ExpectGolden(const std::string& folder, std::string_view name, uint32_t version,
                  std::string_view bytes);
void ExpectGolden(const std::string& folder, std::string_view name, uint32_t version,
                  std::span<const std::byte> bytes);

// What ExpectGolden says, "" for nothing. `update`: a file that is missing is written.
std::string GoldenComplaint(const std::string& folder, std::string_view name, uint32_t version,
                            std::string_view bytes, bool update);

}  // namespace longhaul::testing
