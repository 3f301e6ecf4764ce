# Third-party packages, found once for all folders. deploy/setup.sh installs them.

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED) # module mode, before gRPC's config mode
find_package(absl REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(yaml-cpp REQUIRED)
if(NOT TARGET yaml-cpp::yaml-cpp)
  add_library(yaml-cpp::yaml-cpp ALIAS yaml-cpp)
endif()
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(hwy REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)
find_package(CURL REQUIRED)
find_package(pugixml REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(UCX REQUIRED IMPORTED_TARGET ucx)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(PROMETHEUS REQUIRED IMPORTED_TARGET prometheus-cpp-core)
pkg_check_modules(HTTPLIB REQUIRED IMPORTED_TARGET cpp-httplib) # the dashboard's server
# Intel's library of ciphers has neither CMake's nor pkg-config's files. The shared one, not the archive beside it.
find_library(LONGHAUL_IPSEC_MB libIPSec_MB.so REQUIRED)
add_library(longhaul_ipsec_mb INTERFACE IMPORTED)
target_link_libraries(longhaul_ipsec_mb INTERFACE "${LONGHAUL_IPSEC_MB}")
find_path(LONGHAUL_RANDOM123_DIR Random123/philox.h REQUIRED) # headers alone, where the compiler looks

# LibTorch's CPU part alone, out of the wheel that deploy/setup.sh unpacked. Not find_package(Torch):
# that wants the whole CUDA toolkit, and libtorch.so pulls the CUDA part in.
file(GLOB LONGHAUL_TORCH_CANDIDATES
  "${PROJECT_SOURCE_DIR}/.deps/venv/lib/python3*/site-packages/torch")
list(GET LONGHAUL_TORCH_CANDIDATES 0 LONGHAUL_TORCH_CANDIDATE)
set(LONGHAUL_TORCH_DIR "${LONGHAUL_TORCH_CANDIDATE}" CACHE PATH "The wheel's torch folder")
if(NOT EXISTS "${LONGHAUL_TORCH_DIR}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "LibTorch is not in .deps/; run deploy/setup.sh first.")
endif()

# LibTorch carries protobuf and fmt headers of other versions that would shadow the system's; this
# folder goes first.
set(LONGHAUL_SHADOW_DIR "${PROJECT_BINARY_DIR}/include-first")
file(MAKE_DIRECTORY "${LONGHAUL_SHADOW_DIR}/google")
file(CREATE_LINK /usr/include/google/protobuf "${LONGHAUL_SHADOW_DIR}/google/protobuf" SYMBOLIC)
file(CREATE_LINK /usr/include/fmt "${LONGHAUL_SHADOW_DIR}/fmt" SYMBOLIC)

foreach(part c10 torch_cpu)
  add_library(longhaul_${part} SHARED IMPORTED)
  set_target_properties(longhaul_${part} PROPERTIES
    IMPORTED_LOCATION "${LONGHAUL_TORCH_DIR}/lib/lib${part}.so")
endforeach()
add_library(longhaul_torch INTERFACE)
target_include_directories(longhaul_torch SYSTEM INTERFACE
  "${LONGHAUL_SHADOW_DIR}"
  "${LONGHAUL_TORCH_DIR}/include"
  "${LONGHAUL_TORCH_DIR}/include/torch/csrc/api/include")
target_link_libraries(longhaul_torch INTERFACE longhaul_torch_cpu longhaul_c10)
# The wheel's libraries find NVIDIA's by their own RUNPATH; the linker need not look.
target_link_options(longhaul_torch INTERFACE -Wl,--unresolved-symbols=ignore-in-shared-libs)
