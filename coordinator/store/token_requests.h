// Calls that make a join token, made again (coordinator/state/once.h). The answer to such a call is
// a secret, which is not kept: a repeated call makes another token, and the one that nobody got
// goes. Internal to coordinator/store.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "base/status.h"
#include "coordinator/state/once.h"
#include "coordinator/store/sqlite.h"

namespace longhaul::coordinator {

// Within the transaction that adds a token for `uses` uses: notes the token, by the hash of its
// secret, as that of this call, and takes back the token of an earlier try. Returns whether there
// was one. kInvalidArgument: the id belongs to another call. kFailedPrecondition: the earlier token
// was used, so its answer did come.
StatusOr<bool> NoteTokenOf(const Once& once, const std::string& secret_sha256, int64_t uses,
                           absl::Time now, sqlite::Database* database);

}  // namespace longhaul::coordinator
