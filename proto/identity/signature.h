// Signs texts with a member's key, so that a third party can see later what the member has said.
// Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul {

// What a text is signed as. It is signed with the text, so that a signature of one purpose means
// nothing for another.
inline constexpr std::string_view kSignedAsDigests = "longhaul digests 1\n";

// Returns an ECDSA signature with SHA-256 (DER) over `purpose` and `text`. kInvalidArgument: not a
// P-256 key. kInternal: OpenSSL failed.
StatusOr<std::string> SignText(std::string_view key_pem, std::string_view purpose,
                               std::string_view text);
// Returns whether the key of the first certificate in `certificate_pem` has signed `purpose` and
// `text`. False if there is no certificate.
bool IsSignedBy(std::string_view certificate_pem, std::string_view purpose, std::string_view text,
                std::string_view signature);

}  // namespace longhaul
