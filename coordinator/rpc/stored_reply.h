// What the reply of a call says of the change that the call made.
#pragma once

#include "coordinator/store/journal.h"
#include "longhaul/v1/control.pb.h"

namespace longhaul::coordinator {

inline void FillStored(const Written& written, v1::Stored* stored) {
  stored->set_where(written.held == Held::kBoth ? v1::Stored::BOTH : v1::Stored::HERE);
  stored->set_change(written.change);
}

}  // namespace longhaul::coordinator
