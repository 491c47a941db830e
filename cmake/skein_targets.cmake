# One library per folder: folder = namespace = target. A sub-folder, `launch/watch`, is a target of its own (skein_launch_watch)
# in its folder's namespace, and its tests join the folder's program.
#
#   skein_library(comm
#     SOURCES group.cpp          # compiled into the folder's archive
#     TESTS group_test.cpp       # one program per folder, <folder>_test
#     DEPENDS core tensor        # the folders of tools/layers.txt, plus outside libraries
#     TORCH)                     # links LibTorch
function(skein_library name)
  cmake_parse_arguments(A "TORCH" "" "SOURCES;TESTS;DEPENDS" ${ARGN})
  skein_target(target ${name})
  string(REGEX REPLACE "/.*" "" program ${name})
  if(A_TORCH AND NOT SKEIN_TORCH)
    return()
  endif()
  if(A_TORCH)
    list(APPEND A_DEPENDS skein::torch)
  endif()
  skein_add_library(${target} SOURCES ${A_SOURCES} DEPENDS ${A_DEPENDS})
  skein_add_test(${program} SOURCES ${A_TESTS} DEPENDS ${name})
  if(A_TORCH AND A_TESTS)
    set_target_properties(${program}_test PROPERTIES BUILD_RPATH "${SKEIN_TORCH_RPATH}")
  endif()
endfunction()

function(skein_add_library target)
  cmake_parse_arguments(A "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${target} STATIC ${A_SOURCES})
  target_include_directories(${target} PUBLIC "${CMAKE_SOURCE_DIR}")
  skein_link(${target} PUBLIC ${A_DEPENDS})
endfunction()

# The target of a folder: skein_core, skein_launch_watch.
function(skein_target variable folder)
  string(REPLACE "/" "_" name ${folder})
  set(${variable} skein_${name} PARENT_SCOPE)
endfunction()

# `core` and `launch/watch` mean our folders, `skein::yaml` an outside library.
function(skein_link target visibility)
  foreach(dependency ${ARGN})
    if(dependency MATCHES "::")
      target_link_libraries(${target} ${visibility} ${dependency})
    else()
      skein_target(folder ${dependency})
      target_link_libraries(${target} ${visibility} ${folder})
    endif()
  endforeach()
endfunction()

# Test files are batched into unity sources: a LibTorch header costs seconds per file.
function(skein_add_test name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPENDS" ${ARGN})
  if(NOT A_SOURCES)
    return()
  endif()
  if(NOT TARGET ${name}_test)
    add_executable(${name}_test)
    set_target_properties(${name}_test PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 4
      RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests"
      BUILD_RPATH_USE_ORIGIN ON SKIP_BUILD_RPATH OFF)
    target_link_libraries(${name}_test PRIVATE GTest::gtest GTest::gtest_main)
    add_test(NAME ${name} COMMAND ${name}_test)
  endif()
  target_sources(${name}_test PRIVATE ${A_SOURCES})
  skein_link(${name}_test PRIVATE ${A_DEPENDS})
endfunction()

function(skein_program name)
  cmake_parse_arguments(A "TORCH" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  skein_link(${name} PRIVATE ${A_DEPENDS})
  if(A_TORCH)
    set_target_properties(${name} PROPERTIES BUILD_RPATH "${SKEIN_TORCH_RPATH}" BUILD_RPATH_USE_ORIGIN ON)
  endif()
endfunction()
