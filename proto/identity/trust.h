// What a member remembers of authorities that it trusted before a rotation (rotation.h): their
// fingerprints, in lines behind the certificates that it trusts now. Join tokens in files outlive a
// rotation; by these lines a member knows that such a token is that of its own coordinator, and
// does not join anew. Nothing is trusted because of them. Pure.
//
//   once authority FINGERPRINT
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul {

// Returns what a member keeps that trusted `before` and was given `given`: the latter, with lines
// for the authorities of the former that are not in it. kInvalidArgument: no certificates.
StatusOr<std::string> TrustedAfter(std::string_view before, std::string_view given);
// Returns whether an authority of this fingerprint is trusted, or was once. kInvalidArgument: no
// certificates.
StatusOr<bool> KnowsAuthority(std::string_view trusted, std::string_view fingerprint);

}  // namespace longhaul
