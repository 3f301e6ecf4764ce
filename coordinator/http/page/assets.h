// The dashboard's page: what the browser gets.
#ifndef LONGHAUL_COORDINATOR_HTTP_PAGE_ASSETS_H_
#define LONGHAUL_COORDINATOR_HTTP_PAGE_ASSETS_H_

#include "base/web/assets.h"

namespace longhaul::coordinator {

std::span<const Asset> PageAssets();

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_HTTP_PAGE_ASSETS_H_
