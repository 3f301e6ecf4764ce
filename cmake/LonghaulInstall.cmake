# What `cmake --install` makes of a build: the layout of the portable bundle (deploy/bundle.sh), which
# brings the shared libraries, too. The programs look for these beside themselves, wherever that is;
# by DT_RPATH, which also counts for what libraries need, unlike DT_RUNPATH.
set(LONGHAUL_PROGRAMS longhaul longhaul-coordinator longhaul-worker longhaul-codec
  longhaul-generate)
foreach(program IN LISTS LONGHAUL_PROGRAMS)
  if(NOT TARGET ${program})
    continue()
  endif()
  target_link_options(${program} PRIVATE -Wl,--disable-new-dtags)
  set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
  # What runs is a script, which finds LibTorch first (deploy/bundle/with_torch).
  set(folder bin)
  if(program MATCHES "^longhaul-(worker|generate)$")
    set(folder libexec)
  endif()
  install(TARGETS ${program} RUNTIME DESTINATION ${folder})
endforeach()
if(TARGET longhaul_cuda)
  install(TARGETS longhaul_cuda LIBRARY DESTINATION lib)
endif()
if(TARGET longhaul_torch_cuda)
  install(TARGETS longhaul_torch_cuda LIBRARY DESTINATION lib)
endif()
# PyTorch's operators, where they were built (`--target torch_ops`): the wheel's package longhaul_codecs loads them.
set_target_properties(longhaul_torch_ops PROPERTIES INSTALL_RPATH "$ORIGIN")
install(TARGETS longhaul_torch_ops LIBRARY DESTINATION lib OPTIONAL)
# What `longhaul data` runs; its packages are not brought.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/deploy/data/" DESTINATION share/longhaul/data
  FILES_MATCHING PATTERN "*.py" PATTERN "requirements.txt" PATTERN "__pycache__" EXCLUDE)
# What `longhaul steps` runs to log to trackers; its packages are not brought.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/deploy/steps/" DESTINATION share/longhaul/steps
  FILES_MATCHING PATTERN "*.py" PATTERN "requirements.txt" PATTERN "__pycache__" EXCLUDE)
# What runs codecs that are classes of Python; its package is not brought.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/deploy/codec/" DESTINATION share/longhaul/codec
  FILES_MATCHING PATTERN "*.py" PATTERN "requirements.txt" PATTERN "__pycache__" EXCLUDE)
# What `longhaul sweep` runs, and what its reports are drawn with.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/deploy/sweep/" DESTINATION share/longhaul/sweep
  FILES_MATCHING PATTERN "*.py" PATTERN "*.js" PATTERN "*.css" PATTERN "__pycache__" EXCLUDE PATTERN "fuzz" EXCLUDE)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/base/web/uplot/" DESTINATION share/longhaul/sweep/page
  FILES_MATCHING PATTERN "uPlot.*" PATTERN "LICENSE")
