// The tables of the store. Opens a store file safely, whatever it contains. Internal to
// coordinator/store.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "coordinator/store/sqlite.h"

namespace longhaul::coordinator {

inline constexpr uint32_t kStoreApplicationId = 0x4C484331;  // "LHC1"
inline constexpr uint32_t kStoreSchemaVersion = 9;
// The oldest version that is brought to the present one when it is opened.
inline constexpr uint32_t kOldestStoreSchemaVersion = 6;

// Makes the error (kDataLoss) for a store that cannot be used.
Status DamagedStore(const std::string& path, std::string_view detail);

// Opens the database at `path`, or makes an empty one. A store of version kOldestStoreSchemaVersion
// or later gets the tables of the present version. kFailedPrecondition: it has another version or
// belongs to another program. kDataLoss: it is damaged. A refused file is left as it is, byte for
// byte.
StatusOr<sqlite::Database> OpenOrCreateStore(const std::string& path);

}  // namespace longhaul::coordinator
