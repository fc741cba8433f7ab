package main

// Main lets the test binary be the program: see TestMain.
var Main = main
