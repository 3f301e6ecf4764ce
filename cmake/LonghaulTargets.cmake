# How every target of this project is compiled, and the three functions that make one.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")

add_library(longhaul_compile_options INTERFACE)
# -ffp-contract=off: a fused multiply-add would make results depend on the compiler and on the
# instruction set; the codecs promise the same bytes everywhere (docs/design/formats.md).
target_compile_options(longhaul_compile_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Werror -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
    -Wimplicit-fallthrough -Wno-missing-field-initializers -Werror=unused-result -ffp-contract=off -pthread>)
# g++ takes the way in which fmt 9 grows its big integers (g++ 13) and in which strings are copied into a
# StatusOr (g++ 12, with precompiled headers) for overruns.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(longhaul_compile_options INTERFACE -Wno-array-bounds -Wno-stringop-overflow)
endif()
target_include_directories(longhaul_compile_options INTERFACE "${PROJECT_SOURCE_DIR}")

if(LONGHAUL_SANITIZE)
  set(options -fsanitize=${LONGHAUL_SANITIZE} -fno-omit-frame-pointer -g1)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU") # it loses sight of which member of a StatusOr lives
    list(APPEND options -Wno-maybe-uninitialized)
  endif()
  if(LONGHAUL_SANITIZE STREQUAL "thread") # compiling for it takes twice as long as its tests
    set(CMAKE_CXX_FLAGS_RELEASE "-O1")
  endif()
  if(LONGHAUL_SANITIZE MATCHES "undefined")
    list(APPEND options -fno-sanitize-recover=undefined)
  endif()
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${options}>")
  add_link_options(-fsanitize=${LONGHAUL_SANITIZE})
endif()
if(LONGHAUL_FUZZ)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>)
endif()

# Most of what the compiler does is for the headers and templates of gRPC, LibTorch, Abseil and fmt, again in
# every translation unit. So the files of a library are compiled as one, or as few. Off where each file has
# to stand for itself: for clang-tidy (tests/lint.sh), which so sees a missing include.
option(LONGHAUL_UNITY "Compile the source files of a library together" ON)
set(LONGHAUL_UNITY_FILES 20) # at most: a unit of so many takes up to a minute and 2 GB
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ looks for garbage in its heap all the time, and finds little: a tenth of its time and more.
  target_compile_options(longhaul_compile_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param ggc-min-expand=400 --param ggc-min-heapsize=524288>")
endif()

# Units of equal size, so that no long one is left to the end.
function(lh_compile_together name)
  get_target_property(sources ${name} SOURCES)
  list(LENGTH sources files)
  math(EXPR units "(${files} + ${LONGHAUL_UNITY_FILES} - 1) / ${LONGHAUL_UNITY_FILES}")
  math(EXPR batch "(${files} + ${units} - 1) / ${units}")
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${batch})
  # A class of a .cc file may hold types of its unnamed namespace; g++ takes that ill of a file that is included.
  target_compile_options(${name} PRIVATE
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-subobject-linkage>)
endfunction()

# For what no step of a run waits for: a quarter less to compile.
function(lh_compile_cold name)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# What nearly all files of the libraries include, precompiled: about a tenth less of building. A precompiled header
# goes with the options that it was compiled with, so what is compiled cold has one of its own.
function(lh_precompile_headers)
  foreach(name longhaul_headers longhaul_headers_cold)
    add_library(${name} OBJECT "${PROJECT_SOURCE_DIR}/cmake/precompiled/headers.cc")
    target_link_libraries(${name} PRIVATE longhaul_compile_options fmt::fmt absl::statusor absl::time
      Threads::Threads)
    target_precompile_headers(${name} PRIVATE "${PROJECT_SOURCE_DIR}/cmake/precompiled/headers.h")
  endforeach()
  lh_compile_cold(longhaul_headers_cold)
endfunction()

# lh_library(NAME SRCS a.cc... DEPS targets... [COLD|QUICK]): a static library. COLD: lh_compile_cold. QUICK, of
# tests: lh_compile_quickly.
function(lh_library name)
  cmake_parse_arguments(ARG "COLD;QUICK" "" "SRCS;DEPS" ${ARGN})
  if(ARG_SRCS)
    add_library(${name} STATIC ${ARG_SRCS})
    target_link_libraries(${name} PUBLIC longhaul_compile_options ${ARG_DEPS})
    if(LONGHAUL_UNITY)
      lh_compile_together(${name})
      if(ARG_COLD)
        target_precompile_headers(${name} REUSE_FROM longhaul_headers_cold)
      elseif(NOT ARG_QUICK)
        target_precompile_headers(${name} REUSE_FROM longhaul_headers)
      endif()
    endif()
    if(ARG_COLD)
      lh_compile_cold(${name})
    elseif(ARG_QUICK)
      lh_compile_quickly(${name})
    endif()
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE longhaul_compile_options ${ARG_DEPS})
  endif()
endfunction()

# lh_assets(NAME FUNCTION HEADER files... [NAMESPACE n]): a library with one function, which HEADER declares and which
# gives the texts of the files (base/web/assets.h).
function(lh_assets name function header)
  cmake_parse_arguments(ARG "" "NAMESPACE" "" ${ARGN})
  if(NOT ARG_NAMESPACE)
    set(ARG_NAMESPACE longhaul)
  endif()
  set(paths "")
  foreach(file IN LISTS ARG_UNPARSED_ARGUMENTS)
    list(APPEND paths "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
  endforeach()
  string(REPLACE ";" "," joined "${paths}")
  set(output "${CMAKE_CURRENT_BINARY_DIR}/${name}.cc")
  add_custom_command(OUTPUT "${output}"
    COMMAND "${CMAKE_COMMAND}" "-DOUTPUT=${output}" "-DHEADER=${header}" "-DFUNCTION=${function}"
      "-DNAMESPACE=${ARG_NAMESPACE}" "-DFILES=${joined}" -P "${PROJECT_SOURCE_DIR}/cmake/EmbedAssets.cmake"
    DEPENDS ${paths} "${PROJECT_SOURCE_DIR}/cmake/EmbedAssets.cmake"
    VERBATIM)
  add_library(${name} STATIC "${output}")
  target_link_libraries(${name} PUBLIC longhaul_compile_options)
endfunction()

# lh_binary(NAME SRCS a.cc... DEPS targets... [COLD]): a program. COLD: lh_compile_cold.
function(lh_binary name)
  cmake_parse_arguments(ARG "COLD" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE longhaul_compile_options ${ARG_DEPS})
  if(ARG_COLD)
    lh_compile_cold(${name})
  endif()
endfunction()

# Tests are half of what is compiled and hardly ever what takes time: no optimisation, and what all of
# them include in a precompiled header.
function(lh_compile_quickly name)
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
endfunction()

# More than a hundred programs of tests are linked. gold, which comes with ld, takes a third of ld's time.
find_program(LONGHAUL_GOLD ld.gold)
function(lh_link_quickly name)
  if(LONGHAUL_GOLD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT LONGHAUL_SANITIZE)
    target_link_options(${name} PRIVATE -fuse-ld=gold)
  endif()
endfunction()

# lh_test_binary(NAME SRCS a.cc... DEPS targets...): a program that tests start, compiled as they are.
function(lh_test_binary name)
  lh_binary(${name} ${ARGN})
  lh_compile_quickly(${name})
  lh_link_quickly(${name})
  if(LONGHAUL_UNITY)
    lh_compile_together(${name})
  endif()
endfunction()

# lh_test(NAME SRCS a.cc... DEPS targets... [LABELS l...] [TIMEOUT seconds] [BUSY]): a GoogleTest
# program, one ctest entry. Labels: unit (default; also run under the sanitizers), grpc (beside unit: ThreadSanitizer does
# not run it), multiprocess, netns, bench, gpu. BUSY: its own code computes for long, so it is compiled with -O1.
# COMMAND: what ctest runs, if not NAME.
function(lh_test name)
  cmake_parse_arguments(ARG "BUSY" "TIMEOUT" "SRCS;DEPS;LABELS;COMMAND" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE longhaul_compile_options ${ARG_DEPS} GTest::gmock_main)
  lh_link_quickly(${name})
  if(ARG_BUSY)
    lh_compile_cold(${name})
  else()
    lh_compile_quickly(${name})
    if(TARGET longhaul_test_headers)
      target_precompile_headers(${name} REUSE_FROM longhaul_test_headers)
    endif()
  endif()
  if(LONGHAUL_UNITY)
    lh_compile_together(${name})
  endif()
  if(NOT ARG_COMMAND)
    set(ARG_COMMAND ${name})
  endif()
  add_test(NAME ${name} COMMAND ${ARG_COMMAND})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  # What ThreadSanitizer runs (tests/run.sh): gRPC is not built for it, and scripts only start programs.
  if("unit" IN_LIST ARG_LABELS AND NOT "grpc" IN_LIST ARG_LABELS)
    list(APPEND ARG_LABELS tsan)
    set_property(GLOBAL APPEND PROPERTY LONGHAUL_TSAN_TESTS ${name})
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  if(LONGHAUL_SANITIZE)
    math(EXPR ARG_TIMEOUT "4 * ${ARG_TIMEOUT}") # sanitizers take several times as long
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()

# lh_golden_files(TEST): the test compares what it writes with the files in golden/ beside its
# CMakeLists.txt (tests/support/golden.h).
function(lh_golden_files name)
  target_sources(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests/support/golden.cc")
  target_compile_definitions(${name} PRIVATE GOLDEN_DIR="${CMAKE_CURRENT_SOURCE_DIR}/golden")
endfunction()

# lh_full_cases(TEST PATTERNS...): the default run leaves out the cases that match one of these GoogleTest patterns.
# The entry TEST_full runs them, in `tests/run.sh --full` alone. For grids: the default run keeps their corners.
function(lh_full_cases name)
  list(JOIN ARGN ":" patterns)
  get_test_property(${name} LABELS labels)
  get_test_property(${name} TIMEOUT limit)
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "GTEST_FILTER=-${patterns}")
  add_test(NAME ${name}_full COMMAND ${name})
  set_tests_properties(${name}_full PROPERTIES LABELS "${labels};full" TIMEOUT ${limit} COST 90
    ENVIRONMENT "GTEST_FILTER=${patterns}" FAIL_REGULAR_EXPRESSION "Running 0 tests") # patterns that match nothing any more
endfunction()

# lh_quiet_test(NAME COMMAND...): a test that holds limits of time as they are promised, with LONGHAUL_TEST_QUIET=1.
# `tests/run.sh --full` runs these alone and one after the other, behind everything else; other parts leave them out.
function(lh_quiet_test name)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS quiet RUN_SERIAL TRUE TIMEOUT 3600 SKIP_RETURN_CODE 77
    ENVIRONMENT LONGHAUL_TEST_QUIET=1 FAIL_REGULAR_EXPRESSION "Running 0 tests")
endfunction()

# lh_only_in_full(targets...): `tests/run.sh --full` builds these targets (as `full`), the default build does not:
# programs for GPUs, and benchmarks, whose tests carry the label `bench`.
function(lh_only_in_full)
  set_target_properties(${ARGN} PROPERTIES EXCLUDE_FROM_ALL ON)
  set_property(GLOBAL APPEND PROPERTY LONGHAUL_ONLY_IN_FULL ${ARGN})
endfunction()

# lh_gpu_test(NAME SRCS a.cc... DEPS targets...): an lh_test that needs a GPU (tests/support/
# gpu_test.h). ctest shows the test as skipped where there is no GPU, or where the program is not built (target
# gpu_tests); tests/gpu.sh runs all of them.
function(lh_gpu_test name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  lh_test(${name}
    SRCS ${ARG_SRCS} "${PROJECT_SOURCE_DIR}/tests/support/gpu_test.cc"
    DEPS ${ARG_DEPS} longhaul_cuda_device
    COMMAND sh -c "[ -x \"$0\" ] || exit 77; exec \"$0\"" "$<TARGET_FILE:${name}>"
    LABELS gpu)
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 RESOURCE_LOCK gpu)
  lh_only_in_full(${name})
  if(TARGET longhaul_cuda)
    add_dependencies(${name} longhaul_cuda)
  endif()
  set_property(GLOBAL APPEND PROPERTY LONGHAUL_GPU_TESTS ${name})
endfunction()

# lh_fuzzer(NAME SRCS x_fuzz.cc DEPS targets...): a libFuzzer program, built only with LONGHAUL_FUZZ.
# Its body (base/fuzz/target.h) is also a part of fuzz_smoke_test (tests/fuzz).
function(lh_fuzzer name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  list(TRANSFORM ARG_SRCS PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" OUTPUT_VARIABLE bodies)
  set_property(GLOBAL APPEND PROPERTY LONGHAUL_FUZZ_BODIES ${bodies})
  set_property(GLOBAL APPEND PROPERTY LONGHAUL_FUZZ_DEPS ${ARG_DEPS})
  if(LONGHAUL_FUZZ)
    add_executable(${name} ${ARG_SRCS})
    target_link_libraries(${name} PRIVATE longhaul_compile_options ${ARG_DEPS})
    target_compile_definitions(${name} PRIVATE LONGHAUL_FUZZ)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_property(GLOBAL APPEND PROPERTY LONGHAUL_FUZZERS ${name})
  endif()
endfunction()
