// The files from which workers and people who set up an installation take their first join token.
// Each holds a token that may be used any number of times, and that ends, as all tokens do: the
// file gets a new one before that. So the file is always good, and a copy of it for a while.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "base/status.h"
#include "coordinator/store/members.h"
#include "proto/identity/rotation.h"

namespace longhaul::coordinator {

struct TokenFile {
  std::string path;
  Role role = Role::kAdmin;
  std::string_view what;  // for people: "the join token for admins"
};

// Writes a new token into the file if it is not there, or if its token is good for less than a
// third of kLongestTokenLife. Returns a sentence about it; nullopt: the file stays. A file that is
// there and cannot be written is no error; the sentence says so. kFailedPrecondition: the file
// holds something else than a token of these authorities and this role, and stays.
StatusOr<std::optional<std::string>> ProvideToken(const TokenFile& file,
                                                  const Authorities& authorities, Members* members,
                                                  absl::Time now);

}  // namespace longhaul::coordinator
