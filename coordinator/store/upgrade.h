// Stores of older versions, brought to this one. Internal to coordinator/store.
#ifndef LONGHAUL_COORDINATOR_STORE_UPGRADE_H_
#define LONGHAUL_COORDINATOR_STORE_UPGRADE_H_

#include <cstdint>

#include "base/status.h"
#include "coordinator/store/sqlite.h"

namespace longhaul::coordinator {

inline constexpr uint32_t kOldestStoreSchemaVersion = 1;

// Members and join tokens (members.h), which version 5 brought.
inline constexpr char kMemberTables[] = R"sql(
CREATE TABLE IF NOT EXISTS members(
  name TEXT PRIMARY KEY NOT NULL,
  role TEXT NOT NULL,
  worker_id TEXT NOT NULL,
  key_sha256 TEXT NOT NULL,              -- of the key that it joined with and keeps
  joined_unix_ms INTEGER NOT NULL,
  until_unix_ms INTEGER NOT NULL,        -- the end of the newest certificate
  revoked_unix_ms INTEGER NOT NULL);     -- 0: not revoked
CREATE TABLE IF NOT EXISTS join_tokens(
  secret_sha256 TEXT PRIMARY KEY NOT NULL,
  role TEXT NOT NULL,
  uses_left INTEGER NOT NULL,            -- negative: any number
  until_unix_ms INTEGER NOT NULL);       -- 0: for ever
)sql";

// From `version` to kStoreSchemaVersion, all or nothing; but runs that cannot be read stay as they
// are.
Status UpgradeStore(sqlite::Database* database, uint32_t version);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_STORE_UPGRADE_H_
