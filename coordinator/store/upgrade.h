// Stores of older versions, brought to this one. Internal to coordinator/store.
#ifndef LONGHAUL_COORDINATOR_STORE_UPGRADE_H_
#define LONGHAUL_COORDINATOR_STORE_UPGRADE_H_

#include <cstdint>

#include "base/status.h"
#include "coordinator/store/sqlite.h"

namespace longhaul::coordinator {

inline constexpr uint32_t kOldestStoreSchemaVersion = 1;

// From `version` to kStoreSchemaVersion, all or nothing; but runs that cannot be read stay as they
// are.
Status UpgradeStore(sqlite::Database* database, uint32_t version);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_STORE_UPGRADE_H_
