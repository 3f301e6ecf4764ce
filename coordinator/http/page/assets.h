// The files of the dashboard's page (HTML, styles, scripts), compiled into the program, as the HTTP
// server gives them to browsers. Constant; thread-safe.
#ifndef LONGHAUL_COORDINATOR_HTTP_PAGE_ASSETS_H_
#define LONGHAUL_COORDINATOR_HTTP_PAGE_ASSETS_H_

#include "base/web/assets.h"

namespace longhaul::coordinator {

std::span<const Asset> PageAssets();

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_HTTP_PAGE_ASSETS_H_
